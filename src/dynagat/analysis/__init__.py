"""How attentive is a model? What it attends to, how its rankings vary, and the paper's theorems."""
