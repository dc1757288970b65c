CREATE MODEL delay_model
COMMENT 'The delay of a departure in minutes, by the hour of the day (UTC), wind and visibility in whole miles'
WITH ('path' = 'models/delay.onnx');
