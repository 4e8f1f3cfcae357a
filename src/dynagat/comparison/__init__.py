"""The user's own graph: which mechanism to use, the model that came out, and its predictions."""

from dynagat.comparison.comparison import Comparison, compare
from dynagat.comparison.model import Model, load_model
from dynagat.comparison.pages import write_pages
from dynagat.comparison.plan import as_settings, check_choices
from dynagat.comparison.predictions import Predictions

__all__ = ["Comparison", "Model", "Predictions", "as_settings", "check_choices", "compare"]
__all__ += ["load_model", "write_pages"]
