"""How attentive is a model: captured attention, its measurements, and the paper's theorems."""
