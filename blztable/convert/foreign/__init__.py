"""Foreign: data that is neither pandas nor Arrow: numpy arrays, rows, readers of other programs."""
