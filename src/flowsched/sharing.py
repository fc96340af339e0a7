"""Proportional sharing among users over time: the deployment sequence, and the ledger of what is lent.

`sequence` writes one period out; `DeploymentSequence` draws from an endless one; `Ledger` holds the debts; `Deployment`
puts them together, heartbeat by heartbeat.
"""

from flowsched.policy.deployment import Deployment, Heartbeat
from flowsched.policy.lending import Ledger, Reclaimed
from flowsched.policy.sequence import DeploymentSequence, sequence

__all__ = ["Deployment", "DeploymentSequence", "Heartbeat", "Ledger", "Reclaimed", "sequence"]
