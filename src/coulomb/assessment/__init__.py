"""What is made of a finished run: its evaluation beside the baselines, transfer, embeddings, the doctor's evidence."""
