"""Users' own images, labels and videos."""
