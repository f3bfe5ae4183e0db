"""Defences made for classification, carried over to forecasting as the paper's comparison does."""
