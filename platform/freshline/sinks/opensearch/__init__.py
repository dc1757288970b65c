"""Documents of OpenSearch and Elasticsearch as a sink."""
