{{/* The plugin's own variables and rights. */}}

{{/* Variable, value, and what the values call it, of everything that is handed on to the process. */}}
{{- define "gdp.plugin.values" -}}
{{- list
  (list "MPS_ROOT" .Values.mps.root "mps.root")
  (list "MIG_STRATEGY" .Values.migStrategy "migStrategy")
  (list "FAIL_ON_INIT_ERROR" .Values.failOnInitError "failOnInitError")
  (list "PASS_DEVICE_SPECS" .Values.compatWithCPUManager "compatWithCPUManager")
  (list "DEVICE_LIST_STRATEGY" .Values.deviceListStrategy "deviceListStrategy")
  (list "DEVICE_ID_STRATEGY" .Values.deviceIDStrategy "deviceIDStrategy")
  (list "NVIDIA_DRIVER_ROOT" .Values.nvidiaDriverRoot "nvidiaDriverRoot")
  (list "NVIDIA_DEV_ROOT" .Values.nvidiaDevRoot "nvidiaDevRoot")
  (list "NVIDIA_CDI_HOOK_PATH" .Values.cdi.nvidiaHookPath "cdi.nvidiaHookPath")
  (list "CDI_FEATURE_FLAGS" .Values.cdi.featureFlags "cdi.featureFlags")
  (list "GDRCOPY_ENABLED" .Values.gdrcopyEnabled "gdrcopyEnabled")
  (list "GDS_ENABLED" .Values.gdsEnabled "gdsEnabled")
  (list "MOFED_ENABLED" .Values.mofedEnabled "mofedEnabled")
  (list "DEVICE_DISCOVERY_STRATEGY" .Values.deviceDiscoveryStrategy "deviceDiscoveryStrategy")
  (list "CONFIG_STRICTNESS" .Values.configStrictness "configStrictness")
  (list "DP_DISABLE_HEALTHCHECKS" (.Values.healthChecks.disable | default nil) "healthChecks.disable")
  (list "DP_ENABLE_HEALTHCHECKS" (.Values.healthChecks.enable | default nil) "healthChecks.enable")
  (list "LOG_FORMAT" .Values.log.format "log.format")
  (list "LOG_LEVEL" .Values.log.level "log.level")
| toJson -}}
{{- end -}}

{{- define "gdp.plugin.env" -}}
{{- $waits := not (include "gdp.asked" . | fromJson).failOnInitError -}}
{{- /* What the container's runtime is asked for. extraEnv may ask otherwise: no variable may stand twice (server-side apply). */ -}}
{{- $runtime := dict
  "NVIDIA_VISIBLE_DEVICES" (include "gdp.volumeMounts" . | empty | ternary "all" "/var/run/nvidia-container-devices")
  "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- if include "gdp.mig" . -}}
{{- $_ := set $runtime "NVIDIA_MIG_MONITOR_DEVICES" "all" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- $_ := unset $runtime .name -}}
{{- end -}}
{{- range $name, $value := $runtime }}
- name: {{ $name }}
  value: {{ $value }}
{{- end }}
{{- if include "gdp.config.map" . }}
- name: CONFIG_FILE
  value: /config/config.yaml
{{- end }}
{{- range include "gdp.plugin.values" . | fromJsonArray }}
{{- $unset := kindIs "invalid" (index . 1) }}
{{- include "gdp.env" (and $unset $waits (eq (index . 0) "FAIL_ON_INIT_ERROR") | ternary (list (index . 0) false) .) }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The kubelet's directories belong to root (modes 0755 and 0750): as their owner it needs no capability. */}}
{{- define "gdp.plugin.securityContext" -}}
{{- if .Values.securityContext -}}
{{ toYaml .Values.securityContext }}
{{- else -}}
runAsUser: 0
readOnlyRootFilesystem: true
{{- if .Values.compatWithCPUManager }}
# compatWithCPUManager: an update of its CPU set would take the GPUs from a container with a device list of its own.
privileged: true
{{- else if include "gdp.mig" . }}
capabilities:
  drop: [ALL]
  # privileges.mig: without it NVIDIA's runtime starts no container that has NVIDIA_MIG_MONITOR_DEVICES.
  add: [SYS_ADMIN]
{{- else }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}
{{- end -}}
{{- end -}}
