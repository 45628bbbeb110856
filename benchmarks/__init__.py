"""What a round costs, and what it should: six workloads, the machine's limit, the peers."""
