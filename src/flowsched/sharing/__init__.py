"""Proportional sharing among users over time: the deployment sequence, and the ledger of loans.

`sequence` writes out one period; `DeploymentSequence` draws from an endless sequence; `Ledger` holds the debts;
`Deployment` combines them, heartbeat by heartbeat.
"""

from flowsched.sharing.deployment import Deployment, Heartbeat
from flowsched.sharing.deployment_sequence import DeploymentSequence, sequence
from flowsched.sharing.ledger import Ledger, Reclaimed

__all__ = ["Deployment", "DeploymentSequence", "Heartbeat", "Ledger", "Reclaimed", "sequence"]
