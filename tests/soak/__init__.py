"""The reconciler and the kubelet link against the stand-in, through any history (issue 5, Proof)."""
