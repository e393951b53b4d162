"""Self-contained HTML pages: charts, formatted numbers and the page template that report, lab and bench share."""
