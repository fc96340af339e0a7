"""Proportional sharing among users over time: the deployment sequence, and the ledger of what is lent.

`sequence` writes one period out; `DeploymentSequence` draws from an endless one; `Ledger` holds the debts; `Deployment`
puts them together, heartbeat by heartbeat.
"""

from flowsched.sharing.deployment import Deployment, Heartbeat
from flowsched.sharing.deployment_sequence import DeploymentSequence, sequence
from flowsched.sharing.ledger import Ledger, Reclaimed

__all__ = ["Deployment", "DeploymentSequence", "Heartbeat", "Ledger", "Reclaimed", "sequence"]
