{{/* The MPS supervisor. */}}

{{/* Labels of its own: NVIDIA's two DaemonSets share one selector. */}}
{{- define "gdp.mps.identity" -}}
{{- dict "app.kubernetes.io/name" (printf "%s-mps" (include "gdp.cut" (list 59 (include "gdp.name" .)))) "app.kubernetes.io/instance" .Release.Name | toYaml -}}
{{- end -}}

{{- define "gdp.mps.securityContext" -}}
{{- if .Values.mps.securityContext -}}
{{ toYaml .Values.mps.securityContext }}
{{- else -}}
runAsUser: 0
readOnlyRootFilesystem: true
{{- if .Values.compatWithCPUManager }}
# compatWithCPUManager: as for the plugin's container; the control daemons' GPUs would go, too.
privileged: true
{{- else }}
capabilities:
  drop: [ALL]
  # SYS_ADMIN: setting a GPU's compute mode, and listing MIG instances. The others: the daemon starts servers that run as
  # their clients' users, opens its pipes to these, and ends them.
  add: [SYS_ADMIN, SETUID, SETGID, CHOWN, FOWNER, KILL]
{{- end }}
{{- end -}}
{{- end -}}

{{/* No limit by itself: daemons and their servers count to this container, and its end is the end of every client. */}}
{{- define "gdp.mps.resources" -}}
{{- .Values.mps.resources | default (dict "requests" (dict "cpu" "50m" "memory" "64Mi")) | toYaml -}}
{{- end -}}
