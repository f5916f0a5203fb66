"""The experiment that grades the programs of labs."""
