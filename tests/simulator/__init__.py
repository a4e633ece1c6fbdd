"""Tests of the kubelet stand-in; `naive_plugin` is the small plugin that they all plant."""
