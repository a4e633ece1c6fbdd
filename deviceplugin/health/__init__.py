"""Driver signals -> verdict on each GPU and MIG instance, with reason and evidence. Pure: time is passed in."""
