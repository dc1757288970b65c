{# When the newest file was written of which this table has rows. As a literal it lets Spark skip the older files. #}
{% macro newest_file() %}
  {%- set found = run_query("SELECT CAST(coalesce(max(loaded_at), TIMESTAMP'1970-01-01') AS STRING) FROM " ~ this) -%}
  TIMESTAMP'{{ found.columns[0].values()[0] }}'
{%- endmacro %}
