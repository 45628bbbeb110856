"""The clients' devices, their availability, and what a round costs them."""
