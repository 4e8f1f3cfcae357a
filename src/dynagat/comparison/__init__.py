"""The user's own graph: which mechanism to use, the model that came out, and its predictions."""

from dynagat.comparison.comparison import Comparison, compare
from dynagat.comparison.model import Model, load_model
from dynagat.comparison.pages import write_pages
from dynagat.comparison.plan import check_choices
from dynagat.comparison.predictions import Predictions

__all__ = ["Comparison", "Model", "Predictions", "check_choices", "compare", "load_model"]
__all__ += ["write_pages"]
