"""Scripts and built pages against published standards: `make audit`."""
