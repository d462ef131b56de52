"""What a study is: its dimensions, stages and questions, each declared once. Nothing heavy is imported here."""
