"""Settings of the whole test run."""

from effort import FUZZ
from hypothesis import HealthCheck, settings

# A deadline would make the outcome depend on the machine; new examples are for FLOWSCHED_FUZZ=1, a default run can be repeated.
settings.register_profile(
    "flowsched", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=not FUZZ
)
settings.load_profile("flowsched")
