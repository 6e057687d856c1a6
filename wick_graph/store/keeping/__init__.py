"""What lies beside the checkpoints: ledger, journal, streams, tokens; and what cleans up."""
