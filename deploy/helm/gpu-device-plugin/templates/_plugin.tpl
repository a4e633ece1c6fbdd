{{/* The plugin's own variables and rights. */}}

{{- define "gdp.plugin.env" -}}
{{- $asked := include "gdp.asked" . | fromJson -}}
{{- $failOnInitError := .Values.failOnInitError -}}
{{- if and (kindIs "invalid" $failOnInitError) (not $asked.failOnInitError) -}}
{{- $failOnInitError = false -}}
{{- end -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: {{ if include "gdp.volumeMounts" . }}/var/run/nvidia-container-devices{{ else }}all{{ end }}
- name: NVIDIA_DRIVER_CAPABILITIES
  value: compute,utility
{{- if include "gdp.mig" . }}
- name: NVIDIA_MIG_MONITOR_DEVICES
  value: all
{{- end }}
{{- if include "gdp.config.map" . }}
- name: CONFIG_FILE
  value: /config/config.yaml
{{- end }}
{{- range list
  (list "MPS_ROOT" .Values.mps.root)
  (list "MIG_STRATEGY" .Values.migStrategy)
  (list "FAIL_ON_INIT_ERROR" $failOnInitError)
  (list "PASS_DEVICE_SPECS" .Values.compatWithCPUManager)
  (list "DEVICE_LIST_STRATEGY" .Values.deviceListStrategy)
  (list "DEVICE_ID_STRATEGY" .Values.deviceIDStrategy)
  (list "NVIDIA_DRIVER_ROOT" .Values.nvidiaDriverRoot)
  (list "NVIDIA_DEV_ROOT" .Values.nvidiaDevRoot)
  (list "NVIDIA_CDI_HOOK_PATH" .Values.cdi.nvidiaHookPath)
  (list "CDI_FEATURE_FLAGS" .Values.cdi.featureFlags)
  (list "GDRCOPY_ENABLED" .Values.gdrcopyEnabled)
  (list "GDS_ENABLED" .Values.gdsEnabled)
  (list "MOFED_ENABLED" .Values.mofedEnabled)
  (list "DEVICE_DISCOVERY_STRATEGY" .Values.deviceDiscoveryStrategy)
  (list "CONFIG_STRICTNESS" .Values.configStrictness)
  (list "DP_DISABLE_HEALTHCHECKS" (.Values.healthChecks.disable | default nil))
  (list "DP_ENABLE_HEALTHCHECKS" (.Values.healthChecks.enable | default nil))
  (list "LOG_FORMAT" .Values.log.format)
  (list "LOG_LEVEL" .Values.log.level)
}}
{{- include "gdp.env" . }}
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
  # privileges.mig: without it NVIDIA's runtime ignores NVIDIA_MIG_MONITOR_DEVICES.
  add: [SYS_ADMIN]
{{- else }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}
{{- end -}}
{{- end -}}
