"""A stand-in for the MPS control daemon: a real program with real pipes. Its behaviour is told in `program`."""

from tests.mps_standin.handles import Client, ControlDaemon, Faults, ask, end_servers, install

__all__ = ["Client", "ControlDaemon", "Faults", "ask", "end_servers", "install"]
