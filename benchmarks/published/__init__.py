"""The published figures that this project is based on, and what `simulate` predicts for them."""
