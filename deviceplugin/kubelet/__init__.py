"""The kubelet's side of the product: one gRPC server per resource, registration, restarts, what pods hold."""
