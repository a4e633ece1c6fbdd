"""Pure functions: snapshot + config + health + held -> plan, transition, and why a resource has the size it has."""
