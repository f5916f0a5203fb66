"""The built pages against published standards: Nu HTML checker, axe, Lighthouse. `make audit`."""
