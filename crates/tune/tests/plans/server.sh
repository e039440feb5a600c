sysctl -w net.core.rmem_max=67108864
sysctl -w net.core.wmem_max=67108864
sysctl -w net.ipv4.tcp_rmem="4096 131072 33554432"
sysctl -w net.ipv4.tcp_wmem="4096 16384 33554432"
sysctl -w net.ipv4.tcp_timestamps=1
sysctl -w net.ipv4.tcp_no_metrics_save=1
sysctl -w net.ipv4.tcp_slow_start_after_idle=0
sysctl -w net.core.netdev_max_backlog=16384
sysctl -w net.core.netdev_budget=600
sysctl -w net.core.netdev_budget_usecs=4000
ethtool -G eth0 rx 1024
ethtool -G eth1 rx 1024
ethtool -L eth1 combined 4
ethtool -C eth1 adaptive-rx on
ethtool -K eth1 rx-lro off
ethtool -K eth1 tx-tcp-segmentation on
echo 4 > /proc/irq/120/smp_affinity_list
echo 5 > /proc/irq/121/smp_affinity_list
echo 6 > /proc/irq/122/smp_affinity_list
echo 7 > /proc/irq/123/smp_affinity_list
echo 5555 > /sys/class/net/eth0/queues/tx-0/xps_cpus
echo aaaa > /sys/class/net/eth0/queues/tx-1/xps_cpus
echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy1/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy10/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy11/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy12/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy13/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy14/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy15/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy2/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy3/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy4/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy5/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy6/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy7/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy8/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy9/scaling_governor
sysctl -w kernel.numa_balancing=0
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
sysctl -w vm.zone_reclaim_mode=0
sysctl -w vm.swappiness=10
