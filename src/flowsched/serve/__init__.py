"""A scheduler as a service: events in, rounds out, by HTTP and JSON."""

from flowsched.serve.client import Client, ServiceError
from flowsched.serve.service import Service
from flowsched.serve.told import ToldRequests

__all__ = ["Client", "Service", "ServiceError", "ToldRequests"]
