sysctl -w net.ipv4.tcp_slow_start_after_idle=0
echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns
echo 2048 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
