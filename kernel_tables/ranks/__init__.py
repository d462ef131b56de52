"""The processes of one run side by side: what each did, and what communication between them costs."""
