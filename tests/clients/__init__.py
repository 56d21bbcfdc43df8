"""What clients of customers do on each refusal, over HTTP; their sleep moves the clock."""
