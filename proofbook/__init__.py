"""The command `proofbook`: what the runners and the generator do, under one name."""
