"""What a round costs, and what it should cost: six workloads, the machine's limit, and the peers."""
