"""Tests of the product's side of the kubelet: real gRPC, real sockets, and the stand-in that keeps the contract."""
