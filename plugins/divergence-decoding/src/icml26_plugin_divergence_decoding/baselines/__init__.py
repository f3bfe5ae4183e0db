"""What Divergence Decoding is compared with."""
