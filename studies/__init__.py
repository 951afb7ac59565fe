"""Studies of the disentanglement chapters: from a table of results to the figures and tables of the thesis."""
