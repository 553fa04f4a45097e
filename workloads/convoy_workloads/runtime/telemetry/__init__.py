"""What a rank spends its steps on: measured without change in the user's code, folded, told to the agent."""
