"""Your own graph, links or molecules: which mechanism to use, the best model, predictions."""

from dynagat.comparison.comparison import Comparison, compare
from dynagat.comparison.link_model import LinkModel
from dynagat.comparison.model import Model
from dynagat.comparison.models import load_model
from dynagat.comparison.molecule_model import MoleculeModel
from dynagat.comparison.node_model import NodeModel
from dynagat.comparison.pages import write_pages
from dynagat.comparison.plan import check_choices
from dynagat.comparison.predictions import LinkScores, Predictions

__all__ = ["Comparison", "LinkModel", "LinkScores", "Model", "MoleculeModel", "NodeModel"]
__all__ += ["Predictions", "check_choices", "compare", "load_model", "write_pages"]
