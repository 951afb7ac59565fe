"""Page for browsing trained checkpoints: its local server, and its static export."""
