"""What training on a data set would take: sizes, memory, network traffic and time per epoch."""

from dynagat.planning.plan import Hosts, Plan, make_plan
from dynagat.planning.rates import Rates, measure_rates, read_rates
from dynagat.planning.sizes import Sizes, find_sizes

__all__ = ["Hosts", "Plan", "Rates", "Sizes", "find_sizes", "make_plan"]
__all__ += ["measure_rates", "read_rates"]
