import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * The Hive metastore that comes with Spark, on Derby, for tests: `java -cp JARS Metastore.java PORT FOLDER`.
 *
 * Hive 2.3's own main class listens on all addresses. This one has the same handler, and listens on loopback.
 */
public class Metastore {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1];
        HiveConf settings = new HiveConf();
        settings.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + folder + "/db;create=true");
        settings.set("hive.metastore.warehouse.dir", "file:" + folder + "/warehouse");
        settings.set("datanucleus.schema.autoCreateAll", "true");
        settings.set("hive.metastore.schema.verification", "false");
        ThriftHiveMetastore.Iface handler = HiveMetaStore.newRetryingHMSHandler("metastore", settings, true);
        // Only now: whoever connects is answered.
        ServerSocket socket = new ServerSocket();
        socket.setReuseAddress(true);
        socket.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), Integer.parseInt(arguments[0])));
        TServerSocket listener = new TServerSocket(new TServerSocket.ServerSocketTransportArgs().serverSocket(socket));
        new TThreadPoolServer(new TThreadPoolServer.Args(listener)
            .processor(new ThriftHiveMetastore.Processor<>(handler))
            .protocolFactory(new TBinaryProtocol.Factory())
            .minWorkerThreads(2).maxWorkerThreads(50)).serve();
    }
}
