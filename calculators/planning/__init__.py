"""Which deployment is the cheapest that meets a workload: candidates, a closed form that prunes them, simulations."""
