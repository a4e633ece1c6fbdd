"""Planning: pure functions, so each rule is one small case; properties hold for random nodes and configs."""
