sysctl -w net.ipv4.tcp_congestion_control=cubic
sysctl -w net.ipv4.tcp_sack=1
sysctl -w net.ipv4.tcp_window_scaling=1
sysctl -w net.core.busy_poll=0
sysctl -w net.core.busy_read=0
ethtool -K eth0 rx-gro on
ethtool -K eth0 rx-checksum on
echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy1/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy2/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy3/scaling_governor
echo madvise > /sys/kernel/mm/transparent_hugepage/defrag
sysctl -w vm.swappiness=10
