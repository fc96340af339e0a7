"""Settings of the whole test run."""

from hypothesis import HealthCheck, settings

# a deadline would make the outcome depend on the machine
settings.register_profile("flowsched", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("flowsched")
