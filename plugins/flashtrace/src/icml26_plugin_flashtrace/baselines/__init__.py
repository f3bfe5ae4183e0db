"""What attribution methods are compared with: gradients, attention, perturbation, and controls that know nothing."""
