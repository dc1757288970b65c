import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.Reader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's engine, whose events a producer of the same process sends to one topic. Prints how many events were sent,
 * tombstones left out, after each batch. Arguments: the file of the engine's properties, the brokers, the topic.
 */
public class DebeziumToKafka {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[1], "linger.ms", "5");
        long[] sent = {0};
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            DebeziumEngine.create(Json.class)
                    .using(properties)
                    .notifying((records, committer) -> {
                        for (ChangeEvent<String, String> record : records) {
                            producer.send(new ProducerRecord<>(arguments[2], record.key(), record.value()));
                            sent[0] += record.value() == null ? 0 : 1;
                        }
                        producer.flush();
                        for (ChangeEvent<String, String> record : records) {
                            committer.markProcessed(record);
                        }
                        committer.markBatchFinished();
                        System.out.println(sent[0]);
                        System.out.flush();
                    })
                    .build()
                    .run();
        }
    }
}
